// MLX: weight has rows of 32-bit words, a stream of codes with the first in the low bits; scales [outputs, groups], and
// biases alike in the mode "affine": weight = scale * code + bias. The modes mxfp4, nvfp4 and mxfp8 have bytes as scales.
#include "model/quantized/bit_fields.h"
#include "model/quantized/config_values.h"
#include "model/quantized/methods.h"
#include "model/quantized/scales.h"

namespace quire {
namespace {

constexpr std::string_view kMlx = "mlx";
constexpr size_t kMostPaths = 1 << 20;

CodedScheme read_mlx_scheme(const JsonField& settings, const JsonField& usual) {
  CodedScheme scheme;
  scheme.form = CodedForm::kMlx;
  const auto of = [&](std::string_view key) { return settings.has(key) ? settings : usual; };
  const std::string mode = read_word(of("mode"), "mode", kMlx, {"affine", "mxfp4", "nvfp4", "mxfp8"});
  scheme.symmetric = mode != "affine";
  const std::string named = fmt::format("mlx {}", mode);
  if (mode == "affine") {
    scheme.bits = read_choice(of("bits"), "bits", named, {2, 3, 4, 5, 6, 8});
    scheme.group = read_choice(of("group_size"), "group_size", named, {32, 64, 128});
  } else {
    scheme.bits = read_choice(of("bits"), "bits", named, {mode == "mxfp8" ? 8 : 4});
    scheme.group = read_choice(of("group_size"), "group_size", named, {mode == "nvfp4" ? 16 : 32});
  }
  return scheme;
}

// Codes of 5 and 6 bits, eight at a time.
void unpack_stream(const std::byte* from, size_t bits, size_t count, uint8_t* codes) {
  const uint64_t mask = (uint64_t{1} << bits) - 1;
  for (size_t i = 0; i < count; i += 8, from += bits) {
    uint64_t eight = 0;
    std::memcpy(&eight, from, bits);
    for (size_t j = 0; j < 8; ++j) codes[i + j] = static_cast<uint8_t>(eight >> j * bits & mask);
  }
}

template <int kBits>
void unpack_words(const std::byte* from, size_t count, uint8_t* codes) {
  for (size_t i = 0; i < count; i += 8, from += kBits) {
    uint64_t eight = 0;
    std::memcpy(&eight, from, kBits);
    const uint64_t bytes = spread_fields<kBits>(eight);
    std::memcpy(codes + i, &bytes, sizeof bytes);
  }
}

void unpack_codes(int bits, const std::byte* from, size_t count, uint8_t* codes) {
  if (bits == 5 || bits == 6) return unpack_stream(from, static_cast<size_t>(bits), count, codes);
  if (bits == 8) return unpack_offset_bytes(from, count, codes);
  with_bits(bits, [&](auto b) { unpack_words<b()>(from, count, codes); });
}

// Kernels know 5 and 6 bits with GGUF's scales only.
Codes affine_codes(int bits) {
  constexpr Codes kOfBits[] = {Codes::kU2, Codes::kU3, Codes::kU4};
  return bits <= 4 ? kOfBits[bits - 2] : Codes::kI8;
}

struct MlxTensors {
  const TensorView *weight, *scales;
  size_t first;  // row of a stack
};

// What the file has, of the scheme or, where that only is the usual one, as the shapes say.
CodedScheme scheme_of(const ModuleTensors& module, const CodedScheme& scheme) {
  CodedScheme found = scheme;
  if (!scheme.by_shape) return found;
  const TensorView &weight = module.get(".weight"), &scales = module.get(".scales");
  if (weight.shape.empty() || scales.shape.empty() || scales.shape.back() == 0) return found;
  const uint64_t cols = module.cols(), bits = weight.shape.back() * 32 / cols, group = cols / scales.shape.back();
  const bool is_affine = is_plain(scales.type);
  const auto is_one_of = [](uint64_t value, std::initializer_list<uint64_t> allowed) {
    return std::ranges::find(allowed, value) != allowed.end();
  };
  const bool is_known = is_affine ? is_one_of(bits, {2, 3, 4, 5, 6, 8}) && is_one_of(group, {32, 64, 128})
                                  : (bits == 4 && is_one_of(group, {16, 32})) || (bits == 8 && group == 32);
  if (!is_known || cols % group != 0 || bits * cols != weight.shape.back() * 32) return found;
  found.symmetric = !is_affine;
  found.bits = static_cast<int>(bits);
  found.group = static_cast<int>(group);
  return found;
}

MlxTensors get_tensors(const ModuleTensors& module, const CodedScheme& scheme) {
  using Shape = ModuleTensors::Shape;
  const uint64_t cols = module.cols(), group = static_cast<uint64_t>(scheme.group);
  if (cols % group != 0)
    throw unsupported("{}: tensor {} has rows of {} inputs, which groups of {} do not divide", module.file(),
                      module.get(".weight").name, cols, group);
  Shape words, groups;
  if (module.name().items > 0) words = groups = {static_cast<uint64_t>(module.name().items)};
  words.insert(words.end(), {module.rows(), cols * static_cast<uint64_t>(scheme.bits) / 32});
  groups.insert(groups.end(), {module.rows(), cols / group});
  MlxTensors t{};
  t.weight = &module.get(".weight", {TensorType::U32}, words);
  if (scheme.symmetric) {
    t.scales = &module.get(".scales", {TensorType::U8}, groups);
  } else {
    t.scales = &module.get(".scales", kFloatTypes, groups);
    module.get(".biases", kFloatTypes, groups);
  }
  t.first = static_cast<size_t>(module.name().item) * module.rows();
  return t;
}

CodedMatrix open_affine(const ModuleTensors& module, const CodedScheme& scheme, const MlxTensors& t) {
  const size_t cols = module.cols(), groups = cols / static_cast<size_t>(scheme.group);
  const TensorView& biases = module.get(".biases");
  CodedMatrix m;
  m.format.codes = affine_codes(scheme.bits);
  m.format.scale = ScaleKind::kF32;
  m.format.zeros = ZeroKind::kF32;
  m.format.group = scheme.group;
  m.read_rows = each_row([=, bits = scheme.bits, biases = &biases, scale_label = TensorLabel(module, *t.scales),
                          bias_label = TensorLabel(module, biases)](int row, const CodedRow& out) {
    const size_t n = t.first + static_cast<size_t>(row);
    unpack_codes(bits, t.weight->bytes.data() + n * cols * static_cast<size_t>(bits) / 8, cols, out.codes.data());
    for (size_t g = 0; g < groups; ++g) {
      const float scale = read_float(*t.scales, n * groups + g), bias = read_float(*biases, n * groups + g);
      check_scale(scale, Sign::kAny, scale_label, row);
      if (!std::isfinite(bias)) throw bias_label.damaged("bias", bias, row);
      out.scales[g] = std::bit_cast<uint32_t>(scale);
      // Codes of 8 bits are kept as signed ones.
      out.minima[g] = std::bit_cast<uint32_t>(bits == 8 ? std::fma(128.0f, scale, bias) : bias);
    }
  });
  return m;
}

CodedMatrix open_fp4_words(const ModuleTensors& module, const CodedScheme& scheme, const MlxTensors& t) {
  const size_t cols = module.cols(), groups = cols / static_cast<size_t>(scheme.group);
  const bool is_nvfp4 = scheme.group == 16;
  CodedMatrix m;
  m.format.codes = Codes::kTable4;
  m.format.scale = is_nvfp4 ? ScaleKind::kE4M3 : ScaleKind::kE8M0;
  m.format.group = scheme.group;
  m.format.table = kDoubledE2M1;
  if (is_nvfp4) m.factor = 0.5f;
  m.read_rows = each_row([=, largest = is_nvfp4 ? kLargestE4M3 : kLargestE8M0, label = TensorLabel(module, *t.scales)](
                             int row, const CodedRow& out) {
    const size_t n = t.first + static_cast<size_t>(row);
    unpack_nibbles<FirstNibble::kLow>(t.weight->bytes.data() + n * cols / 2, cols, out.codes.data());
    for (size_t g = 0; g < groups; ++g) {
      const auto scale = load_at<uint8_t>(t.scales->bytes, n * groups + g);
      if (scale > largest) throw label.damaged("scale code", scale, row);
      out.scales[g] = scale;
    }
  });
  return m;
}

CodedMatrix open_fp8_words(const ModuleTensors& module, const CodedScheme& scheme, const MlxTensors& t) {
  const size_t cols = module.cols(), groups = cols / static_cast<size_t>(scheme.group);
  CodedMatrix m;
  m.format.codes = Codes::kE4M3;
  m.format.scale = ScaleKind::kF32;
  m.format.group = scheme.group;
  m.read_rows = each_row([=, label = TensorLabel(module, *t.weight), scale_label = TensorLabel(module, *t.scales)](
                             int row, const CodedRow& out) {
    const size_t n = t.first + static_cast<size_t>(row);
    copy_e4m3(t.weight->bytes.subspan(n * cols, cols), label, row, out.codes);
    for (size_t g = 0; g < groups; ++g) {
      const float scale = read_float(*t.scales, n * groups + g);
      check_scale(scale, Sign::kNotNegative, scale_label, row);
      out.scales[g] = std::bit_cast<uint32_t>(scale);
    }
  });
  return m;
}

}  // namespace

void read_mlx(const JsonField& config, Quantization& to) {
  const auto members = config.members();
  if (members.size() > kMostPaths) throw config.error("has too many members");
  for (const auto& [name, own] : members) {
    if (!own.json().is_object()) continue;  // false: a module that is not quantized, as its tensors tell
    to.parts.push_back({{}, read_mlx_scheme(own, config)});
    to.parts.back().modules.names.emplace(name);
  }
  CodedScheme rest = read_mlx_scheme(config, config);
  rest.by_shape = true;
  use_for_all(rest, to);
}

CodedMatrix open_mlx(const ModuleTensors& module, const CodedScheme& wanted) {
  const CodedScheme scheme = scheme_of(module, wanted);
  const MlxTensors tensors = get_tensors(module, scheme);
  if (!scheme.symmetric) return open_affine(module, scheme, tensors);
  return scheme.bits == 8 ? open_fp8_words(module, scheme, tensors) : open_fp4_words(module, scheme, tensors);
}

}  // namespace quire
