"""What is known of one site: live jobs, histories of starts and run times, features. Nothing here predicts."""
