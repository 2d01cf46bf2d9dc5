"""Checking, topology, the live graph, the frontier, drawing: pure and synchronous."""
