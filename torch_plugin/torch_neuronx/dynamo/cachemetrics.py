def note_build(result): pass
