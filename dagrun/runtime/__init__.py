"""Everything that awaits: the scheduler, the workers, the attempt."""
