"""What moves between this machine and a box, and how we know that it arrived."""
