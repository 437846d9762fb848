// The alphabet (alphabet/alphabet.h) on the emulated device, for the host's compiler.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cuda/alphabet/emulated_memory.h"
#include "cuda/alphabet/emulated_numbers.h"
#include "cuda/emulated/machine.h"

namespace quire::cuda {

inline constexpr bool kHasWarpgroups = true;

// ---- Where a thread is

DEVICE int thread() { return emulated::running->thread; }
DEVICE int threads() { return emulated::running->threads; }
DEVICE int lane() { return emulated::running->thread % 32; }
DEVICE int warp() { return emulated::running->thread / 32; }
DEVICE int block_x() { return emulated::running->block[0]; }
DEVICE int block_y() { return emulated::running->block[1]; }
DEVICE int block_z() { return emulated::running->block[2]; }
DEVICE int blocks_x() { return emulated::running->blocks[0]; }
DEVICE int blocks_y() { return emulated::running->blocks[1]; }
DEVICE int blocks_z() { return emulated::running->blocks[2]; }

// ---- Barriers. (The site is where the kernel calls; messages about a thread that never came name it.)

DEVICE void sync_block(emulated::Site site = emulated::Site::current()) {
  emulated::wait_at_barrier(0, emulated::running->threads, site);
}
DEVICE void sync_warp(emulated::Site site = emulated::Site::current()) { emulated::wait_for_warp(site); }
DEVICE void sync_part(int id, int count, emulated::Site site = emulated::Site::current()) {
  emulated::wait_at_barrier(id, count, site);
}
template <class T>
DEVICE void prefetch(Global<T>) {}
DEVICE void wait_previous(emulated::Site site = emulated::Site::current()) { emulated::wait_previous(site); }

// ---- Clusters

DEVICE int block_of_cluster() { return emulated::running->block_of_cluster; }
DEVICE void sync_cluster(emulated::Site site = emulated::Site::current()) { emulated::sync_cluster(site); }
DEVICE void init_arrivals(Shared<uint64_t> at, int count) { emulated::init_arrivals(at.bytes(), count); }
DEVICE void arrive(Shared<uint64_t> at, int block) { emulated::arrive(at.bytes(), block); }
DEVICE void arrive_expecting(Shared<uint64_t> at, int bytes) { emulated::arrive_expecting(at.bytes(), bytes); }
DEVICE void wait_arrivals(Shared<uint64_t> at, int parity, emulated::Site site = emulated::Site::current()) {
  emulated::wait_arrivals(at.bytes(), parity, site);
}
using emulated::kBoxColumns;
using BoxMap = emulated::BoxSource;
DEVICE void copy_box(const BoxMap& from, int column, int row, Shared<uint8_t> to, Shared<uint64_t> arrivals,
                     uint32_t blocks) {
  emulated::copy_box(from, column, row, to.bytes(), arrivals.bytes(), blocks);
}

// ---- Warps

DEVICE uint32_t shuffle(uint32_t v, int from, emulated::Site site = emulated::Site::current()) {
  emulated::Shuffle lane_{v, from & 31};
  emulated::perform(lane_, site);
  return lane_.value;
}
DEVICE uint32_t shuffle_xor(uint32_t v, int mask, emulated::Site site = emulated::Site::current()) {
  emulated::Shuffle lane_{v, lane() ^ mask};
  emulated::perform(lane_, site);
  return lane_.value;
}
DEVICE uint32_t shuffle_up(uint32_t v, int by, emulated::Site site = emulated::Site::current()) {
  emulated::Shuffle lane_{v, lane() - by};
  emulated::perform(lane_, site);
  return lane_.value;
}
DEVICE uint32_t shuffle_down(uint32_t v, int by, emulated::Site site = emulated::Site::current()) {
  emulated::Shuffle lane_{v, lane() + by};
  emulated::perform(lane_, site);
  return lane_.value;
}
DEVICE int shuffle(int v, int from, emulated::Site site = emulated::Site::current()) {
  return static_cast<int>(shuffle(static_cast<uint32_t>(v), from, site));
}
DEVICE int shuffle_xor(int v, int mask, emulated::Site site = emulated::Site::current()) {
  return static_cast<int>(shuffle_xor(static_cast<uint32_t>(v), mask, site));
}
DEVICE int shuffle_up(int v, int by, emulated::Site site = emulated::Site::current()) {
  return static_cast<int>(shuffle_up(static_cast<uint32_t>(v), by, site));
}
DEVICE int shuffle_down(int v, int by, emulated::Site site = emulated::Site::current()) {
  return static_cast<int>(shuffle_down(static_cast<uint32_t>(v), by, site));
}
DEVICE float shuffle(float v, int from, emulated::Site site = emulated::Site::current()) {
  return bits_float(shuffle(float_bits(v), from, site));
}
DEVICE float shuffle_xor(float v, int mask, emulated::Site site = emulated::Site::current()) {
  return bits_float(shuffle_xor(float_bits(v), mask, site));
}
DEVICE float shuffle_up(float v, int by, emulated::Site site = emulated::Site::current()) {
  return bits_float(shuffle_up(float_bits(v), by, site));
}
DEVICE float shuffle_down(float v, int by, emulated::Site site = emulated::Site::current()) {
  return bits_float(shuffle_down(float_bits(v), by, site));
}
DEVICE uint32_t ballot(bool vote, emulated::Site site = emulated::Site::current()) {
  emulated::Ballot lane{vote, 0};
  emulated::perform(lane, site);
  return lane.votes;
}

// ---- Asynchronous copies

template <int Bytes, class T, class U>
DEVICE void copy_async(Shared<T> to, Global<U> from, bool valid = true) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16);
  emulated::start_copy(to.bytes(), from.bytes(), Bytes, valid);
}
DEVICE void commit_copies() { emulated::commit_copies(); }
template <int N>
DEVICE void wait_copies() {
  emulated::wait_copies(N);
}

// ---- Matrices. A product is exact products, added to d in double in the order of k, and rounded once an instruction.

DEVICE void multiply_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                          emulated::Site site = emulated::Site::current()) {
  emulated::MatrixProduct lane{emulated::MatrixNumbers::kBfloat16, a, b, d};
  emulated::perform(lane, site);
}
DEVICE void multiply_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                         emulated::Site site = emulated::Site::current()) {
  emulated::MatrixProduct lane{emulated::MatrixNumbers::kFloat16, a, b, d};
  emulated::perform(lane, site);
}
DEVICE void multiply_i8(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                        emulated::Site site = emulated::Site::current()) {
  emulated::MatrixProduct lane{emulated::MatrixNumbers::kInt8, a, b, d};
  emulated::perform(lane, site);
}

template <int N, class T>
DEVICE void load_matrices(uint32_t (&r)[N], Shared<T> row, emulated::Site site = emulated::Site::current()) {
  static_assert(N == 1 || N == 2 || N == 4);
  emulated::MatrixLoad lane{row.bytes(), r, false};
  emulated::perform(lane, site);
}
template <int N, class T>
DEVICE void load_matrices_transposed(uint32_t (&r)[N], Shared<T> row, emulated::Site site = emulated::Site::current()) {
  static_assert(N == 1 || N == 2 || N == 4);
  emulated::MatrixLoad lane{row.bytes(), r, true};
  emulated::perform(lane, site);
}

// ---- Warpgroups

DEVICE void fence_products(emulated::Site site = emulated::Site::current()) { emulated::fence_products(site); }
template <int N>
DEVICE void multiply_bf16_wide(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, bool add = true,
                               emulated::Site site = emulated::Site::current()) {
  static_assert(N % 8 == 0 && N >= 8 && N <= 256);
  emulated::WideProduct lane{emulated::MatrixNumbers::kBfloat16, d, N, a, b, add};
  emulated::start_product(lane, site);
}
template <int N>
DEVICE void multiply_e4m3_wide(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, bool add = true,
                               emulated::Site site = emulated::Site::current()) {
  static_assert(N == 8 || N == 32 || N == 64 || N == 128);
  emulated::WideProduct lane{emulated::MatrixNumbers::kE4M3, d, N, a, b, add};
  emulated::start_product(lane, site);
}
template <int N>
DEVICE void multiply_i8_wide(int32_t (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, bool add = true,
                             emulated::Site site = emulated::Site::current()) {
  static_assert(N == 64 || N == 128 || N == 256);
  emulated::WideProduct lane{emulated::MatrixNumbers::kInt8, d, N, a, b, add};
  emulated::start_product(lane, site);
}
template <class T>
DEVICE uint64_t product_rows(Shared<T> p) {
  return emulated::product_rows(p.bytes());
}
DEVICE void commit_products(emulated::Site site = emulated::Site::current()) { emulated::commit_products(site); }
template <int N>
DEVICE void wait_products(emulated::Site site = emulated::Site::current()) {
  emulated::wait_products(N, site);
}
template <class Number, int N>
DEVICE void hold_products(Number (&)[N]) {}
DEVICE void fence_shared() { emulated::fence_shared(); }
template <int N>
DEVICE void raise_registers() {}
template <int N>
DEVICE void lower_registers() {}

}  // namespace quire::cuda
