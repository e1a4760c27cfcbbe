"""Chapter 5: drawings and answers of exercises of the lesson on C-VFL."""
