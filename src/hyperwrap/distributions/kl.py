from typing import NamedTuple
class KLEstimate(NamedTuple):
    a: int
def kl(): ...
