// Which scales the searches try, for books of few codes and of many. More candidates gain less and less: on normal weights
// these lose at most 1 % more than grids four times as dense with twice as many turns.
#pragma once

#include "quant/fit/search.h"

namespace quire {

// Multiples of the scale under which the greatest weight gets the last code. With few codes it pays to cut it off.
inline constexpr float kCoarseSteps[] = {0.60f, 0.68f, 0.76f, 0.82f, 0.88f, 0.94f, 1.00f,
                                         1.06f, 1.12f, 1.18f, 1.26f, 1.36f, 1.48f};
inline constexpr float kFineSteps[] = {0.90f, 0.94f, 0.97f, 0.99f, 1.01f, 1.03f, 1.06f, 1.10f, 1.15f, 1.22f};
inline constexpr float kFinestSteps[] = {0.970f, 0.980f, 0.990f, 1.000f, 1.010f, 1.025f, 1.040f, 1.060f};

inline constexpr ScaleSteps kFewCodes{kCoarseSteps, 3}, kManyCodes{kFineSteps, 3}, kMostCodes{kFinestSteps, 2};

// The same for the range between minimum and maximum.
inline constexpr float kCoarseRanges[] = {0.70f, 0.80f, 0.90f, 1.00f, 1.10f, 1.20f, 1.35f, 1.50f};
inline constexpr float kFineRanges[] = {0.95f, 0.99f, 1.02f, 1.05f, 1.08f, 1.12f, 1.17f};
inline constexpr float kFinestRanges[] = {0.965f, 0.980f, 0.990f, 1.000f, 1.010f, 1.020f,
                                          1.030f, 1.042f, 1.055f, 1.070f, 1.085f, 1.105f};

inline constexpr RangeSteps kFewAffineCodes{kCoarseRanges, 3}, kManyAffineCodes{kFineRanges, 3},
    kMostAffineCodes{kFinestRanges, 4};

}  // namespace quire
