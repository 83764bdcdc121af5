"""State of one site: live jobs, histories of starts and run times, features. No predictions here."""
