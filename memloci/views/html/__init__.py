"""Records to pages: each file turns records into a typed context, and templates/ holds the markup."""
