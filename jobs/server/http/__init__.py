"""HTTP: the routes, a module for each family; what requests say, the forms of answers, the status of what fails."""
