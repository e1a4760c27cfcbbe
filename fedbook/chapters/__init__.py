"""What stands beside the notebooks, one file a lesson: special drawings and the answers of exercises.

Never mathematics or an algorithm of the chapter: those are built on its page.
"""
