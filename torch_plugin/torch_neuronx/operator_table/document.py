def document(*a): return ""
