"""The lab: widgets, plot style, drawing, records, exercises and navigation of the chapters."""
