// The search for codes, scales and minima that lose least of some weights, for each kind of block.
#pragma once

#include <span>

#include "quant/panel_format.h"

namespace quire {

struct BlockType;

// weights: a row's next 256 (kSuperInputs), padded with zeros at its end; finite. importance: what the square of each
// weight's error counts, all above zero and about 1. Fills out, [256]: the parts of whole blocks. False if a scale would
// be infinite in the type that holds it.
using Fit = bool (*)(const BlockType& type, std::span<const float> weights, std::span<const float> importance,
                     const CodedRow& out);

bool fit_flat(const BlockType& type, std::span<const float> weights, std::span<const float> importance,
              const CodedRow& out);  // groups of 32 or 64 under a float16: Q4_0, Q5_0, Q2_0, IQ4_NL
bool fit_q8_0(const BlockType& type, std::span<const float> weights, std::span<const float> importance,
              const CodedRow& out);
bool fit_flat_affine(const BlockType& type, std::span<const float> weights, std::span<const float> importance,
                     const CodedRow& out);  // Q4_1, Q5_1
bool fit_float4(const BlockType& type, std::span<const float> weights, std::span<const float> importance,
                const CodedRow& out);  // MXFP4, NVFP4
bool fit_signs(const BlockType& type, std::span<const float> weights, std::span<const float> importance,
               const CodedRow& out);  // Q1_0
bool fit_ternary(const BlockType& type, std::span<const float> weights, std::span<const float> importance,
                 const CodedRow& out);  // TQ1_0, TQ2_0
bool fit_super(const BlockType& type, std::span<const float> weights, std::span<const float> importance,
               const CodedRow& out);  // Q3_K, Q6_K, IQ4_XS
bool fit_super_affine(const BlockType& type, std::span<const float> weights, std::span<const float> importance,
                      const CodedRow& out);  // Q2_K, Q4_K, Q5_K
bool fit_lattice(const BlockType& type, std::span<const float> weights, std::span<const float> importance,
                 const CodedRow& out);  // IQ1_S .. IQ3_S

}  // namespace quire
