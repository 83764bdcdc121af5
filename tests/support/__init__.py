"""What tests share: traces, made-up events, fakes, and deployments on real servers. No test lives here."""
