"""How derivatives are computed: one file an engine. The engines themselves are imported from `dudx`."""
