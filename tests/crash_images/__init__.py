"""What a disk may hold after the power failed, built from a recording and opened again."""
