"""Chapter 3: drawings and answers of exercises of the lesson on PriRFed."""
