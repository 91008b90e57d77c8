"""Rules: one file a rule, or one tight family."""
