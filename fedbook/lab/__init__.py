"""The lab: widgets, plot style, drawing, records and exercises of the chapters."""
