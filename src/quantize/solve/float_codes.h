// Small floats: the nearest codes of E4M3 and E2M1.
#pragma once

#include <array>
#include <cstdint>

namespace quire {

inline constexpr float kLargestE4M3Number = 448, kLargestE2M1Number = 6;

// E2M1's numbers that are not negative, by code; bit 3 is the sign.
inline constexpr std::array<float, 8> kE2M1Numbers = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};

// Rounds to nearest even. Magnitudes above the largest number become that.
uint8_t e4m3_code(float x);
uint8_t e2m1_code(float x);
float e2m1_number(uint8_t code);

}  // namespace quire
