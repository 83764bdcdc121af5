"""What is known of one site: live jobs, histories of starts and run times, features and their weights.

Nothing here predicts, and nothing imports a method.
"""
