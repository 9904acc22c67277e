"""Customers, kept in memory for as long as the server runs."""

from semantic_kernel.functions.kernel_function_decorator import kernel_function

from sk_agents.ska_types import BasePlugin

CUSTOMERS = {17: "Ada", 23: "Grace"}


class sensitive_plugin(BasePlugin):
    @kernel_function(description="A customer's number, by name.")
    def find_customer(self, name: str) -> int:
        for number, known in CUSTOMERS.items():
            if known == name:
                return number
        raise ValueError(f"no customer is called {name}")

    @kernel_function(description="Delete everything about a customer.")
    def delete_user_data(self, customer: int) -> str:
        if CUSTOMERS.pop(customer, None) is None:
            return f"There is no customer {customer}."
        return f"Customer {customer} is deleted."
