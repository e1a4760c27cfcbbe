"""Chapter 4: drawings and answers of exercises of the lesson on DP2-FedSAM."""
