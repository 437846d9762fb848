// The reference kernels, by file. kernels.h, rows.h and recurrent.h say what they compute.
#pragma once

#include "kernels/kernels.h"
#include "kernels/recurrent.h"
#include "kernels/rows.h"

namespace quire::reference {

// reference_rows.cc
void quantize(const QuantizeArgs& a, int row_begin, int row_end);
void normalize(const NormArgs& a, int row_begin, int row_end);
void multiply_gate(const GateArgs& a, int row_begin, int row_end);
void softplus(const SoftplusArgs& a, int row_begin, int row_end);
void soft_cap(float* x, int count, float cap);
void softmax(float* x, int count);
void sigmoid(float* x, int count);

// reference_attention.cc
void rotate_head(float* x, int dim);  // head_rotation.h
void rotate_head_back(float* x, int dim);
void attention(const AttentionArgs& a, const AttentionTile& tile);
void merge(const AttentionArgs& a, const AttentionMerge& m);

// reference_recurrent.cc
void short_conv(const ShortConvArgs& a, int channel_begin, int channel_end);
void gated_delta(const GatedDeltaArgs& a);
void mamba2(const Mamba2Args& a);

}  // namespace quire::reference
