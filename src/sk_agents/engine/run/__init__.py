"""A run: started, driven, cancelled, taken over; and the prompt that it sends."""
