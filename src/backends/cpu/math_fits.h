// Minimax fits for float64, made for this project (the Remez exchange, in 200 bits): coefficients, lowest
// power first, that generated code and vector code both use.
#pragma once

namespace lockstep::cpu::fits {

// (e^r - 1 - r) / r^2 for |r| <= ln 2 / 2, |error| < 2^-59.
inline constexpr double kExp[] = {0x1.0000000000000p-1,  0x1.5555555555557p-3,  0x1.5555555555558p-5,
                                  0x1.11111111100dbp-7,  0x1.6c16c16c151fcp-10, 0x1.a01a01abe8221p-13,
                                  0x1.a01a01acfaed1p-16, 0x1.71de0231321abp-19, 0x1.27e4cccda4b09p-22,
                                  0x1.af4dea3587662p-26, 0x1.1f8b4cd62319cp-29};

// (2 atanh(s) - 2 s) / s^3 in s^2 <= 0.04, its error relative to 2 atanh(s) < 2^-62.
inline constexpr double kLog[] = {0x1.555555555554fp-1, 0x1.999999999c1adp-2, 0x1.24924921e1852p-2,
                                  0x1.c71c749202b5fp-3, 0x1.745c4a5ce7dd5p-3, 0x1.3b35d01a80b21p-3,
                                  0x1.0dca9f8cc306ep-3, 0x1.1b87da39f2ba1p-3};

// ln 2 in two pieces. The first ends in enough zeros that its product with an exponent is exact.
inline constexpr double kLn2High = 0x1.62e42fefa0000p-1;
inline constexpr double kLn2Low = 0x1.cf79abc9e3b3ap-40;

}  // namespace lockstep::cpu::fits
