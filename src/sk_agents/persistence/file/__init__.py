"""The file store: chats as folders of JSON that people can read."""
