"""The parts of the paging page: what is compared, how it is run, what each picture shows."""
