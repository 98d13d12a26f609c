"""Files: opened beneath allowed roots, read and written as bytes with an encoding, replaced in one step."""
