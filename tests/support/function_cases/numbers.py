"""Functions over numbers."""

from __future__ import annotations

from decimal import Decimal

EXPECTED: dict[str, object] = {
    "ABS(-i) + ABS(d)": 9.5,
    "SIGN(-d)": -1,
    "SIGN(CAST('NaN' AS DOUBLE))": 0,
    "FLOOR(d)": 2.0,
    "FLOOR(m)": Decimal("12"),
    "CEIL(m)": Decimal("13"),
    "CEIL(i)": 7,
    "ROUND(d)": 3,
    "ROUND(m, 1)": Decimal("12.30"),
    "ROUND(d, 1)": 2.5,
    "SQRT(d * d)": 2.5,
    "POWER(i, 2)": 49.0,
    "LN(EXP(1))": 1.0,
    "ROUND(-1.5e0)": -1,
    "ROUND(-1.55e0, 1)": -1.5,
    "ROUND(-2.5, 0)": Decimal("-2.0"),
    "ROUND(CAST('-1.500000000000000000000000000001' AS DECIMAL(38, 30)))": Decimal("-2"),
    "ROUND(CAST('-1.25' AS DECIMAL(38, 30)), 1)": Decimal("-1.2"),
    "ROUND(-12345678901234567890123456789012345.675, 2)": Decimal("-12345678901234567890123456789012345.670"),
    "ROUND(CAST(-250 AS DECIMAL(38, 0)), -2)": Decimal("-200"),
    "ROUND(12345.678e0, -2)": 12300.0,
    "TRUNC(-1.7e0)": -1,
    "TRUNC(0.29e0, 2)": 0.29,
    "TRUNC(m, 1)": Decimal("12.30"),
    "TRUNC(-12345.678e0, -1)": -12340.0,
    "LN(0) < LN(1)": True,
    "LN(-1) = SQRT(-1)": True,
    "LOG(EXP(2)) + LOG(2, 8)": 5.0,
    "CBRT(-8)": -2.0,
    "ROUND(SIN(1) + COS(1) + TAN(1) + ASIN(0.5) + ACOS(0.5) + ATAN(1) + ATAN2(1, 2), 9)": 5.759_023_115,
    "ROUND(SINH(1) + COSH(1) + TANH(1) + COT(1), 9)": 4.121_968_600,
    "COT(0) > 1": True,
    "DEGREES(PI()) - RADIANS(180) + PI()": 180.0,
    "ROUND(GEO_DISTANCE(37.4, -122.1, 51.5, -0.1), 3)": 8_638.258,
    "ROUND(GEO_DISTANCE(37.4, -122.1, 51.5, -0.1, 'miles'), 3)": 5_367.896,
}
