"""The chats API as it travels: requests, answers, and the events of a stream, each described once.

The server renders these models, the Python client reads with them, and the page's TypeScript is
generated from them. Nothing here knows the engine, the server or the client.
"""
