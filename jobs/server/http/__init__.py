"""Requests and answers: values out of the one, the forms of the other, and the status of what fails."""
