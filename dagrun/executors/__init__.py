"""Where tools run: in the loop, in a worker thread, or in a worker process."""
