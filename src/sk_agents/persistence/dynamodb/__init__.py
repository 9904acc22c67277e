"""Threads in one DynamoDB table."""
