class Live:
    pass
