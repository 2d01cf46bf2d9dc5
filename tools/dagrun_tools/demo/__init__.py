"""The demo: a sales analysis on real data, with two remote sources of which one is moody and one is gone."""
