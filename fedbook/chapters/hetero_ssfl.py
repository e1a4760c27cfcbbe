"""Chapter 2: drawings and answers of exercises of the lesson on Hetero-SSFL."""
