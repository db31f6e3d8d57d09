"""The frame in fused kernels: what a GPU runs instead of the plain modules, from the same weights.

Same state layout for the talker, same results up to rounding; a row's bits do not depend on the
batch. The plain modules (`frame.speak_frame`) are its oracle.
"""
