"""Study of a paper on derivatives in PINNs: its experiments, profiles, claims and report; see README.md."""
