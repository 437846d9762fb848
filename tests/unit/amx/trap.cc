#include "unit/amx/trap.h"

#include <immintrin.h>
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/denormals.h"

// The pseudo-code of Intel's manual (Software Developer's Manual, volume 2, "AMX instruction set"). All of this runs in
// a signal handler: no allocation, no locks, no library beyond memcpy. Linux gives a handler the initial FPU state.

namespace quire::testing {
namespace {

constexpr int kTiles = 8, kMostRows = 16, kRowBytes = 64;

// The operand of LDTILECFG and STTILECFG, and the configuration in force; palette 0: not configured.
struct Config {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};
static_assert(sizeof(Config) == 64);

struct TileState {
  Config config;
  alignas(64) std::byte tile[kTiles][kMostRows][kRowBytes];
};
thread_local constinit TileState state{};  // constant-initialized: a signal handler may be its first user

void write_text(const char* text) {
  if (write(STDERR_FILENO, text, std::strlen(text)) < 0) return;  // nothing else can be done
}

[[noreturn]] void die(int signal_number, const char* why) {
  write_text("AMX: ");
  write_text(why);
  write_text("\n");
  signal(signal_number, SIG_DFL);
  sigset_t all;
  sigemptyset(&all);
  sigaddset(&all, signal_number);
  sigprocmask(SIG_UNBLOCK, &all, nullptr);
  raise(signal_number);
  _exit(1);
}
void undefined_unless(bool holds, const char* why) {  // #UD
  if (!holds) die(SIGILL, why);
}
void protection_unless(bool holds, const char* why) {  // #GP
  if (!holds) die(SIGSEGV, why);
}

void load_config(const std::byte* from) {
  Config c;
  std::memcpy(&c, from, sizeof c);
  if (c.palette == 0) {
    state = {};
    return;
  }
  protection_unless(c.palette == 1, "LDTILECFG: there are palettes 0 and 1");
  protection_unless(c.start_row == 0, "LDTILECFG: a first row (of an interrupted load) is not supported here");
  for (const uint8_t byte : c.reserved) protection_unless(byte == 0, "LDTILECFG: a reserved byte is not 0");
  for (int t = 0; t < 16; ++t) {
    protection_unless(t < kTiles || (c.rows[t] == 0 && c.row_bytes[t] == 0), "LDTILECFG: there are 8 tiles");
    protection_unless(c.rows[t] <= kMostRows && c.row_bytes[t] <= kRowBytes, "LDTILECFG: a tile is 16 rows of 64");
    protection_unless((c.rows[t] == 0) == (c.row_bytes[t] == 0), "LDTILECFG: rows without bytes, or bytes without");
  }
  state = {};
  state.config = c;
}

int rows(int tile) { return state.config.rows[tile]; }
int row_bytes(int tile) { return state.config.row_bytes[tile]; }

void demand_tile(int tile) {
  undefined_unless(state.config.palette == 1, "a tile instruction without a configuration");
  undefined_unless(tile < kTiles, "there are 8 tiles");
  undefined_unless(rows(tile) > 0, "a tile that is not configured");
}

void zero(int tile) {
  demand_tile(tile);
  std::memset(state.tile[tile], 0, sizeof state.tile[tile]);
}
void load(int tile, const std::byte* from, ptrdiff_t stride) {
  zero(tile);
  for (int r = 0; r < rows(tile); ++r)
    std::memcpy(state.tile[tile][r], from + r * stride, static_cast<size_t>(row_bytes(tile)));
}
void store(int tile, std::byte* to, ptrdiff_t stride) {
  demand_tile(tile);
  for (int r = 0; r < rows(tile); ++r)
    std::memcpy(to + r * stride, state.tile[tile][r], static_cast<size_t>(row_bytes(tile)));
}

void demand_product(int sums, int a, int b) {
  demand_tile(sums), demand_tile(a), demand_tile(b);
  undefined_unless(sums != a && sums != b && a != b, "TDP: one tile twice");
  undefined_unless(row_bytes(sums) % 4 == 0 && row_bytes(a) % 4 == 0 && row_bytes(b) % 4 == 0, "TDP: part of a word");
  undefined_unless(rows(sums) == rows(a), "TDP: the sums have not the inputs' rows");
  undefined_unless(row_bytes(sums) == row_bytes(b), "TDP: the sums have not the weights' columns");
  undefined_unless(row_bytes(a) / 4 == rows(b), "TDP: the inputs' depth is not the weights'");
}

// Sums beyond the configured columns stay zero because the weights there are zero.
[[gnu::target("avx512f")]] void dot_bytes(int sums, int a, int b, bool a_signed, bool b_signed) {
  for (int k = 0; k < rows(b); ++k) {
    const __m512i words = _mm512_load_si512(state.tile[b][k]);
    for (unsigned i = 0; i < 4; ++i) {
      const __m512i high = _mm512_slli_epi32(words, 24 - 8 * i);
      const __m512i w = b_signed ? _mm512_srai_epi32(high, 24) : _mm512_srli_epi32(high, 24);
      for (int m = 0; m < rows(sums); ++m) {
        const auto byte = static_cast<uint8_t>(state.tile[a][m][4 * static_cast<unsigned>(k) + i]);
        const __m512i x = _mm512_set1_epi32(a_signed ? static_cast<int8_t>(byte) : byte);
        const __m512i sum = _mm512_load_si512(state.tile[sums][m]);
        _mm512_store_si512(state.tile[sums][m], _mm512_add_epi32(sum, _mm512_mullo_epi32(x, w)));
      }
    }
  }
}

// "FP32 FMA with DAZ=FTZ=1, RNE rounding": what VFMADD does in that mode.
[[gnu::target("avx512f")]] void dot_bf16(int sums, int a, int b) {
  const FlushDenormals flush(true);
  const __m512i upper = _mm512_set1_epi32(-0x10000);
  for (int m = 0; m < rows(sums); ++m) {
    __m512 even = _mm512_setzero_ps(), odd = even;
    for (int k = 0; k < rows(b); ++k) {
      int32_t pair;
      std::memcpy(&pair, state.tile[a][m] + 4 * k, sizeof pair);
      const __m512i x = _mm512_set1_epi32(pair), w = _mm512_load_si512(state.tile[b][k]);
      even = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(x, 16)),
                             _mm512_castsi512_ps(_mm512_slli_epi32(w, 16)), even);
      odd = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_and_si512(x, upper)),
                            _mm512_castsi512_ps(_mm512_and_si512(w, upper)), odd);
    }
    auto* sum = reinterpret_cast<float*>(state.tile[sums][m]);
    _mm512_store_ps(sum, _mm512_add_ps(_mm512_load_ps(sum), _mm512_add_ps(even, odd)));
  }
}

// A VEX-encoded instruction, restricted to the forms that AMX uses.
class Instruction {
 public:
  Instruction(const uint8_t* at, const gregset_t& registers) : registers_(&registers), next_(at + 5) {
    if (at[0] != 0xc4 || (at[1] & 0x1f) != 2 || (at[2] & 0x84) != 0) return;  // map 0F38, W 0, 128 bits
    prefix = at[2] & 3;
    vvvv = ~(at[2] >> 3) & 15;
    opcode = at[3];
    const int extend_reg = (~at[1] >> 7 & 1) * 8, extend_index = (~at[1] >> 6 & 1) * 8,
              extend_base = (~at[1] >> 5 & 1) * 8;
    const int mod = at[4] >> 6;
    reg = (at[4] >> 3 & 7) + extend_reg;
    rm = at[4] & 7;
    if (mod == 3) {
      rm += extend_base;
      return;
    }
    in_memory = true;
    has_sib = rm == 4;
    bool has_base = true;
    if (has_sib) {
      const int sib = *next_++, index = (sib >> 3 & 7) + extend_index;
      if (index != 4) stride = static_cast<ptrdiff_t>(value(index) << (sib >> 6));
      rm = sib & 7;
    }
    const bool wide = mod == 2 || (mod == 0 && rm == 5);
    if (mod == 0 && rm == 5) has_base = false;
    if (has_base) address = value(rm + extend_base);
    if (mod == 1) address += static_cast<uint64_t>(displacement<int8_t>());
    if (wide) address += static_cast<uint64_t>(displacement<int32_t>());
    if (!has_base && !has_sib) address += reinterpret_cast<uint64_t>(next_);  // relative to RIP
  }

  enum Prefix { kNone, k66, kF3, kF2 };
  int opcode = -1, prefix = 0, vvvv = 0, reg = 0, rm = 0;
  bool in_memory = false, has_sib = false;
  uint64_t address = 0;  // without the stride
  ptrdiff_t stride = 0;

  const uint8_t* next() const { return next_; }
  std::byte* memory() const { return reinterpret_cast<std::byte*>(address); }

 private:
  uint64_t value(int general_register) const {
    constexpr int kOrder[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                              REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    return static_cast<uint64_t>((*registers_)[kOrder[general_register]]);
  }
  template <class T>
  int64_t displacement() {
    T d;
    std::memcpy(&d, next_, sizeof d);
    next_ += sizeof d;
    return d;
  }

  const gregset_t* registers_;
  const uint8_t* next_;
};

// False if it is not an AMX instruction.
bool execute(const Instruction& i) {
  using I = Instruction;
  if (i.opcode == 0x49 && i.vvvv == 0) {
    if (i.in_memory && i.reg % 8 == 0 && i.prefix == I::kNone) return load_config(i.memory()), true;
    if (i.in_memory && i.reg % 8 == 0 && i.prefix == I::k66) {
      std::memcpy(i.memory(), &state.config, sizeof state.config);
      return true;
    }
    if (!i.in_memory && i.reg == 0 && i.rm == 0 && i.prefix == I::kNone) return state = {}, true;  // TILERELEASE
    if (!i.in_memory && i.rm == 0 && i.prefix == I::kF2) return zero(i.reg), true;
  }
  if (i.opcode == 0x4b && i.in_memory && i.has_sib && i.vvvv == 0) {
    if (i.prefix == I::kF2 || i.prefix == I::k66) return load(i.reg, i.memory(), i.stride), true;  // TILELOADD, -T1
    if (i.prefix == I::kF3) return store(i.reg, i.memory(), i.stride), true;
  }
  if (i.opcode == 0x5e && !i.in_memory) {
    demand_product(i.reg, i.rm, i.vvvv);
    const bool a_signed = i.prefix == I::kF2 || i.prefix == I::kF3;  // TDPBSSD, TDPBSUD
    const bool b_signed = i.prefix == I::kF2 || i.prefix == I::k66;  // TDPBSSD, TDPBUSD
    return dot_bytes(i.reg, i.rm, i.vvvv, a_signed, b_signed), true;
  }
  if (i.opcode == 0x5c && !i.in_memory && i.prefix == I::kF3) {
    demand_product(i.reg, i.rm, i.vvvv);
    return dot_bf16(i.reg, i.rm, i.vvvv), true;
  }
  return false;
}

// Executes all adjacent tile instructions in one signal, which costs microseconds.
void on_illegal_instruction(int, siginfo_t*, void* context) {
  gregset_t& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const auto* at = reinterpret_cast<const uint8_t*>(registers[REG_RIP]);
  const uint8_t* next = at;
  for (Instruction i(next, registers); execute(i); i = Instruction(next, registers)) next = i.next();
  if (next == at) signal(SIGILL, SIG_DFL);  // run it again with the default action, which ends the process
  registers[REG_RIP] = reinterpret_cast<greg_t>(next);
}

}  // namespace

void trap_amx() {
  struct sigaction action {};
  action.sa_sigaction = on_illegal_instruction;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGILL, &action, nullptr);
}

}  // namespace quire::testing
