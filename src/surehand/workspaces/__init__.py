"""What a workspace holds, by content: snapshots, the pieces they are made of, and patches between them."""
