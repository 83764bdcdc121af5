"""What is stored of sites, where and in which order, and how it is read back."""
