"""The prior of the package: trained here, and measured without the site that it is tried on."""
