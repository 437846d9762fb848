// Hugging Face directories that Quire writes: what its readers make of them, and what is refused.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "error_of.h"
#include "model/families.h"
#include "model/quantized/coded_matrix.h"
#include "model/weights.h"
#include "unit/quantize/hf_test_models.h"

namespace quire {
namespace {

using testing::copy_with_type;
using testing::hf_model;
using testing::ignore_progress;
using testing::RandomInputs;

using Directory = testing::HfFolder;

bool same_bits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (a == 0 && b == 0);
}

// The matrix of a module as the readers see it.
FloatMatrix read_module(const Checkpoint& checkpoint, const Quantization& quantization, const std::string& module,
                        int rows, int cols) {
  const FindTensor find = [&](const std::string& name) { return checkpoint.find_tensor(name); };
  auto coded = open_coded_matrix(quantization, checkpoint.file(), find, {.module = module, .rows = rows, .cols = cols});
  EXPECT_TRUE(coded) << module;
  if (!coded) return {};
  FloatMatrix all(rows, cols);
  const FileMatrix from{nullptr, 0, 1, rows, cols, false, std::make_shared<const CodedMatrix>(std::move(*coded))};
  for (int r = 0; r < rows; ++r) read_row(from, r, 0, all.row(r));
  return all;
}

struct RoundTrip {
  std::string name;  // of the test
  const char* method;
  MethodSettings settings;
  TensorType type = TensorType::BF16;
  const char* model = "llama";
};

std::vector<RoundTrip> round_trips() {
  std::vector<RoundTrip> all;
  for (const HfMethod* method : hf_methods()) {
    for (const TensorType type : {TensorType::BF16, TensorType::F16, TensorType::F32}) {
      RoundTrip trip{.method = method->name.data(), .settings = method->defaults, .type = type};
      if (method->flags & static_cast<unsigned>(MethodFlag::kGroup) && trip.settings.group > 0)
        trip.settings.group = 32;
      trip.name = std::string(method->name) + "_" + std::string(name(type));
      all.push_back(trip);
      if (!(method->flags & static_cast<unsigned>(MethodFlag::kSymmetric))) continue;
      trip.settings.symmetric = false;
      trip.name += "_asymmetric";
      all.push_back(trip);
    }
  }
  for (const int bits : {2, 3, 8}) {
    for (const bool symmetric : {false, true}) {
      RoundTrip trip{.method = "gptq", .settings = find_hf_method("gptq").defaults};
      trip.settings.bits = bits;
      trip.settings.group = 32;
      trip.settings.symmetric = symmetric;
      trip.name = "gptq_bits" + std::to_string(bits) + (symmetric ? "" : "_asymmetric");
      all.push_back(trip);
    }
  }
  RoundTrip order{.name = "gptq_order", .method = "gptq", .settings = {.group = 32, .act_order = true}};
  all.push_back(order);
  order.name = "gptq_order_static";
  order.settings.static_groups = true;
  all.push_back(order);
  all.push_back({.name = "gptq_rows", .method = "gptq", .settings = {.group = 0}});
  all.push_back({.name = "gptq_minmax", .method = "gptq", .settings = {.group = 64, .least_squares = false}});
  all.push_back({.name = "awq_rows", .method = "awq", .settings = {.group = 0, .symmetric = false}});
  all.push_back({.name = "rtn_rows", .method = "rtn-int4", .settings = {.group = 0}});
  all.push_back({.name = "nf4_float32", .method = "nf4", .settings = {.double_quantization = false}});
  all.push_back({.name = "smoothquant_half", .method = "smoothquant", .settings = {.bits = 8, .alpha = 0.5f}});
  for (const char* method : {"gptq", "awq", "smoothquant", "fp8-block", "nvfp4", "rtn-int4"}) {
    for (const char* model : {"qwen2", "olmoe", "gemma2", "glm4", "qwen3_next"}) {
      RoundTrip trip{.method = method, .settings = find_hf_method(method).defaults, .model = model};
      if (trip.settings.group > 0) trip.settings.group = 32;
      trip.name = std::string(method) + "_" + model;
      all.push_back(trip);
    }
  }
  for (RoundTrip& trip : all) std::ranges::replace(trip.name, '-', '_');
  return all;
}

class RoundTrips : public testing::HfFolder, public ::testing::WithParamInterface<RoundTrip> {};

TEST_P(RoundTrips, ReadAsTheSolverSaid) {
  const RoundTrip& trip = GetParam();
  const HfMethod& method = find_hf_method(trip.method);
  copy_with_type(hf_model(trip.model), at("in"), trip.type);
  const Checkpoint checkpoint = Checkpoint::open(at("in"));
  const ModelSource source = open_model_source(checkpoint);
  const FindInputs inputs = [&, of = RandomInputs(source)](const Slot& slot) mutable { return of(slot); };
  const HfPlan plan = plan_hf_model(source, method, trip.settings, false);
  const WrittenModel written = write_hf_model(source, plan, inputs, at("out"), false, team_, ignore_progress);
  EXPECT_TRUE(written.notes.empty()) << written.notes.front();
  EXPECT_EQ(written.losses.size(), plan.quantized());

  const Checkpoint result = Checkpoint::open(at("out"));
  const ModelConfig config = read_model_config(result);
  check_weights(result, config);
  const auto quantization = read_quantization(*result.hf());
  ASSERT_TRUE(quantization);
  EXPECT_EQ(quantization->method, method.layout);
  // The same once more, step by step.
  std::vector<bool> quantized;
  for (const HfTensorChange& change : plan.changes) quantized.push_back(!change.module.empty());
  const std::vector<bool> rotated(quantized.size());
  LayerEdits edits(source, method, plan.settings, quantized, rotated, inputs, team_);
  SolverState state{team_};
  std::vector<std::string> notes;
  int layer = -1;
  for (size_t i = 0; i < source.tensors.size(); ++i) {
    if (!quantized[i]) continue;
    const SourceTensor& tensor = source.tensors[i];
    if (tensor.uses.front().slot.layer != layer) edits.open_layer(layer = tensor.uses.front().slot.layer, notes);
    FloatMatrix weights = read_source(source, tensor);
    MatrixContext context{.inputs = inputs(tensor.uses.front().slot)};
    if (const TensorEdit* edit = edits.find(i)) {
      apply(*edit, weights);
      if (!edit->columns.empty())
        context.inputs = std::make_shared<const InputStatistics>(divided_inputs(*context.inputs, edit->columns));
    }
    const FloatMatrix got = read_module(result, *quantization, plan.changes[i].module, weights.rows, weights.cols);
    double lost = 0, all = 0;
    for (size_t k = 0; k < got.values.size(); ++k) {
      lost += std::pow(static_cast<double>(got.values[k]) - static_cast<double>(weights.values[k]), 2);
      all += std::pow(static_cast<double>(weights.values[k]), 2);
    }
    EXPECT_LT(lost, all * (plan.settings.bits == 8 ? 0.002 : plan.settings.bits == 4 ? 0.1 : 0.8)) << tensor.name;
    if (method.joins) continue;  // the divisor depends on other matrices
    const FloatMatrix expected = method.encode(weights, context, plan.settings, state).values;
    size_t others = 0;
    for (size_t k = 0; k < got.values.size(); ++k) others += !same_bits(got.values[k], expected.values[k]);
    EXPECT_EQ(others, 0u) << tensor.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, RoundTrips, ::testing::ValuesIn(round_trips()),
                         [](const auto& info) { return info.param.name; });

// ---- what is written

TEST_F(Directory, KeepsOtherTensorsAndFiles) {
  std::filesystem::create_directory(at("in"));
  for (const char* name : {"config.json", "model.safetensors", "generation_config.json"})
    std::filesystem::copy_file(hf_model("llama") / name, at("in") / name);
  std::ofstream(at("in") / "tokenizer.json") << "{}";
  std::ofstream(at("in") / "LICENSE") << "free";
  std::ofstream(at("in") / "pytorch_model.bin") << "weights";
  std::ofstream(at("in") / ".secret") << "hidden";
  std::filesystem::create_directory(at("in") / "onnx");
  const Checkpoint checkpoint = Checkpoint::open(at("in"));
  const ModelSource source = open_model_source(checkpoint);
  const HfMethod& method = find_hf_method("rtn-int8");
  const HfPlan plan = plan_hf_model(source, method, method.defaults, true);
  write_hf_model(source, plan, {}, at("out"), false, team_, ignore_progress);
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(at("out"))) files.push_back(entry.path().filename());
  std::ranges::sort(files);
  EXPECT_EQ(files, (std::vector<std::string>{"LICENSE", "config.json", "generation_config.json", "model.safetensors",
                                             "tokenizer.json"}));
  const Checkpoint result = Checkpoint::open(at("out"));
  for (const char* name :
       {"model.embed_tokens.weight", "lm_head.weight", "model.norm.weight", "model.layers.0.input_layernorm.weight"}) {
    const TensorView *before = checkpoint.find_tensor(name), *after = result.find_tensor(name);
    ASSERT_TRUE(before && after) << name;
    EXPECT_EQ(before->type, after->type);
    EXPECT_TRUE(std::ranges::equal(before->bytes, after->bytes)) << name;
  }
  Json config = result.hf()->config.json(), old = checkpoint.hf()->config.json();
  config.erase("quantization_config");
  EXPECT_EQ(config, old);
  EXPECT_EQ(names(), (std::vector<std::string>{"in", "out"}));
}

TEST_F(Directory, ListsRoutersAndOutputMatricesAsFloat) {
  const Checkpoint checkpoint = Checkpoint::open(hf_model("olmoe"));
  const ModelSource source = open_model_source(checkpoint);
  for (const HfMethod* method : hf_methods()) {
    MethodSettings settings = method->defaults;
    if (settings.group > 0) settings.group = 32;
    const HfPlan plan = plan_hf_model(source, *method, settings, false);
    const std::string config = method->describe(plan.settings, plan.float_modules).dump();
    bool has_router = false;
    for (const std::string& module : plan.float_modules) {
      has_router |= module.ends_with("mlp.gate");
      const auto tensor = std::ranges::find(source.tensors, module + ".weight", &SourceTensor::name);
      const bool fits = method->misfit(tensor->from.rows, tensor->from.cols, settings).empty();
      if (fits) {
        EXPECT_EQ(module.find("proj"), std::string::npos) << module;
      }
      EXPECT_EQ(module.find("embed"), std::string::npos) << module;
    }
    EXPECT_TRUE(has_router);
    EXPECT_NE(config.find("mlp"), std::string::npos) << config;
  }
}

TEST_F(Directory, IsCutIntoShardsThatAreReadTogether) {
  const Safetensors file = Safetensors::open(hf_model("llama") / "model.safetensors");
  std::vector<PlannedSafetensor> planned;
  for (const TensorView& view : file.tensors()) planned.push_back({view.name, view.type, view.shape});
  std::filesystem::create_directory(at("shards"));
  {
    SafetensorsWriter writer(at("shards"), planned, 100'000);
    for (size_t i = planned.size(); i-- > 0;) writer.write(i, file.tensors()[i].bytes);
    writer.finish();
  }
  const Safetensors back = Safetensors::open(at("shards"));
  EXPECT_GT(back.mappings().size(), 2u);
  ASSERT_EQ(back.tensors().size(), planned.size());
  uint64_t total = 0;
  for (const TensorView& view : file.tensors()) {
    const TensorView* got = back.find_tensor(view.name);
    ASSERT_TRUE(got);
    EXPECT_EQ(got->shape, view.shape);
    EXPECT_TRUE(std::ranges::equal(got->bytes, view.bytes)) << view.name;
    total += view.bytes.size();
  }
  const Json index = parse_json(read_text_file(at("shards") / "model.safetensors.index.json"), "index");
  EXPECT_EQ(index["metadata"]["total_size"], total);
  for (const MappedFile& shard : back.mappings()) EXPECT_LT(shard.bytes().size(), 130'000u);
}

TEST_F(Directory, ChoosesGroupsThatDivideAllMatrices) {
  const Checkpoint checkpoint = Checkpoint::open(hf_model("llama"));
  const ModelSource source = open_model_source(checkpoint);
  const HfMethod& method = find_hf_method("rtn-int4");
  const HfPlan plan = plan_hf_model(source, method, method.defaults, true);
  EXPECT_LT(plan.settings.group, 128);
  for (const HfTensorChange& change : plan.changes) {
    if (!change.module.empty()) {
      EXPECT_EQ(source.tensors[change.tensor].from.cols % plan.settings.group, 0);
    }
  }
  ASSERT_EQ(plan.warnings.size(), 1u);
  EXPECT_NE(plan.warnings[0].find("128 do not divide"), std::string::npos);
}

// ---- what is refused

std::string refusal_of(const std::filesystem::path& model, const char* method_name, int group, const FindInputs& inputs,
                       const std::filesystem::path& to, Team& team, bool replace = false) {
  return error_of([&] {
    const Checkpoint checkpoint = Checkpoint::open(model);
    const ModelSource source = open_model_source(checkpoint);
    const HfMethod& method = find_hf_method(method_name);
    MethodSettings settings = method.defaults;
    settings.group = group;
    const HfPlan plan = plan_hf_model(source, method, settings, false);
    write_hf_model(source, plan, inputs, to, replace, team, ignore_progress);
  });
}

TEST_F(Directory, OfDamagedWeightsIsNotWritten) {
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    std::filesystem::remove_all(at("in"));
    copy_with_type(hf_model("llama"), at("in"), TensorType::F32,
                   [&](const std::string& name, std::vector<float>& values) {
                     if (name == "model.layers.1.mlp.up_proj.weight") values[3 * 64 + 5] = bad;
                   });
    for (const char* method : {"rtn-int4", "nf4", "fp8", "mxfp4", "llm-int8"}) {
      const std::string message = refusal_of(at("in"), method, 32, {}, at("out"), team_);
      EXPECT_NE(message.find("tensor model.layers.1.mlp.up_proj.weight, row 3 has the value"), std::string::npos)
          << message;
    }
    EXPECT_EQ(names(), std::vector<std::string>{"in"});
  }
}

TEST_F(Directory, OfWeightsThatAreTooLargeIsNotWritten) {
  copy_with_type(hf_model("llama"), at("in"), TensorType::F32,
                 [&](const std::string& name, std::vector<float>& values) {
                   if (name == "model.layers.0.self_attn.k_proj.weight") values[7] = 1e30f;
                 });
  const FindInputs none = [](const Slot&) { return nullptr; };
  const std::string message = refusal_of(at("in"), "gptq", 32, none, at("out"), team_);
  EXPECT_NE(message.find("tensor model.layers.0.self_attn.k_proj.weight: weights are too large for scales of float16"),
            std::string::npos)
      << message;
  EXPECT_EQ(names(), std::vector<std::string>{"in"});
}

TEST_F(Directory, IsNotWrittenWithStatisticsThatCannotBe) {
  const Checkpoint checkpoint = Checkpoint::open(hf_model("llama"));
  const ModelSource source = open_model_source(checkpoint);
  RandomInputs good(source);
  struct Case {
    const char* message;
    std::function<void(InputStatistics&)> damage;
  };
  const Case cases[] = {
      {"not all finite", [](InputStatistics& s) { s.squares[1] = INFINITY; }},
      {"not all finite", [](InputStatistics& s) { s.magnitudes[1] = NAN; }},
      {"not all finite", [](InputStatistics& s) { s.largest[1] = INFINITY; }},
      {"not all finite", [](InputStatistics& s) { s.gram[5] = NAN; }},
      {"not all finite", [](InputStatistics& s) { s.sample[5] = -INFINITY; }},
      {"they are another model's", [](InputStatistics& s) { s.cols += 32; }},
  };
  for (const Case& c : cases) {
    for (const char* method : {"gptq", "awq", "smoothquant"}) {
      const FindInputs inputs = [&](const Slot& slot) -> std::shared_ptr<const InputStatistics> {
        const auto of = good(slot);
        if (!of || slot.layer != 1 || slot.tensor != Tensor::kDown) return of;
        InputStatistics damaged = *of;
        c.damage(damaged);
        return std::make_shared<const InputStatistics>(damaged);
      };
      const std::string message = refusal_of(hf_model("llama"), method, 32, inputs, at("out"), team_);
      EXPECT_NE(message.find(c.message), std::string::npos) << method << ": " << message;
      EXPECT_TRUE(names().empty());
    }
  }
}

TEST_F(Directory, SaysWhatNoInputReached) {
  const Checkpoint checkpoint = Checkpoint::open(hf_model("olmoe"));
  const ModelSource source = open_model_source(checkpoint);
  RandomInputs good(source);
  const FindInputs inputs = [&](const Slot& slot) -> std::shared_ptr<const InputStatistics> {
    if (slot.item != 1) return good(slot);  // no token chose the second expert
    InputStatistics none = *good(slot);
    none.rows = 0;
    for (auto* sums : {&none.squares, &none.magnitudes}) std::ranges::fill(*sums, 0.0);
    std::ranges::fill(none.gram, 0.0f);
    std::ranges::fill(none.largest, 0.0f);
    none.sample.clear();
    return std::make_shared<const InputStatistics>(none);
  };
  for (const char* name : {"gptq", "awq", "smoothquant"}) {
    const HfMethod& method = find_hf_method(name);
    MethodSettings settings = method.defaults;
    settings.group = 32;
    const HfPlan plan = plan_hf_model(source, method, settings, false);
    const WrittenModel written = write_hf_model(source, plan, inputs, at(name), false, team_, ignore_progress);
    EXPECT_TRUE(std::ranges::any_of(written.notes, [](const std::string& note) {
      return note.find("experts.1.") != std::string::npos;
    })) << name;
    for (const ModuleLoss& loss : written.losses) EXPECT_LT(loss.weights, 0.4) << loss.module;
  }
}

// A Gram matrix of few rows, of which some are the same.
TEST_F(Directory, SaysThatTheCalibrationTextIsTooShort) {
  const Checkpoint checkpoint = Checkpoint::open(hf_model("llama"));
  const ModelSource source = open_model_source(checkpoint);
  RandomInputs good(source);
  const FindInputs inputs = [&](const Slot& slot) -> std::shared_ptr<const InputStatistics> {
    InputStatistics few = *good(slot);
    FloatMatrix x(5, few.cols);
    std::ranges::copy(std::span(few.sample).first(x.values.size()), x.values.begin());
    return std::make_shared<const InputStatistics>(input_statistics_of(x));
  };
  const HfMethod& method = find_hf_method("gptq");
  MethodSettings settings = method.defaults;
  settings.group = 32;
  const auto notes_of = [&](std::optional<double> damping) {
    settings.damping = damping;
    const HfPlan plan = plan_hf_model(source, method, settings, false);
    return write_hf_model(source, plan, inputs, at("out"), true, team_, ignore_progress).notes;
  };
  bool is_short = false, is_singular = false;
  for (const std::string& note : notes_of(std::nullopt))
    is_short |= note.find("5 rows of its 64 inputs are too few, GPTQ overfits: calibrate with at least 192 tokens") !=
                std::string::npos;
  for (const std::string& note : notes_of(0.0))
    is_singular |= note.find("the inputs' Gram matrix is singular: damped by") != std::string::npos;
  EXPECT_TRUE(is_short);
  EXPECT_TRUE(is_singular);
}

TEST_F(Directory, IsRefusedWhereNothingFits) {
  const FindInputs none = [](const Slot&) { return nullptr; };
  EXPECT_NE(refusal_of(hf_model("llama"), "gptq", 4096, none, at("out"), team_).find("gptq can quantize no matrix: "),
            std::string::npos);
  // Conv1D: the file has [inputs, outputs].
  const std::string message = refusal_of(hf_model("gpt2"), "rtn-int4", 32, {}, at("out"), team_);
  EXPECT_NE(message.find("has no linears that rtn-int4 can quantize"), std::string::npos) << message;
  EXPECT_TRUE(names().empty());
}

// Codes that no rows of numbers can replace.
TEST_F(Directory, OfCodesThatCannotBeTakenApartIsRefused) {
  const std::filesystem::path formats = golden_dir() / "formats/hf-models";
  const auto refusal = [&](const char* model) {
    return refusal_of(formats / model, "rtn-int8", 0, {}, at("out"), team_);
  };
  EXPECT_NE(refusal("modelopt-awq").find("is quantized for inputs that are scaled or rotated"), std::string::npos)
      << refusal("modelopt-awq");
  EXPECT_NE(refusal("gpt-oss-mxfp4").find("is quantized in one tensor with other experts"), std::string::npos)
      << refusal("gpt-oss-mxfp4");
  EXPECT_NE(refusal("mlx-experts").find("is quantized in one tensor with other experts"), std::string::npos)
      << refusal("mlx-experts");
  EXPECT_TRUE(names().empty());
}

// Quantized directories keep their numbers up to int8 rows.
class Requantized : public testing::HfFolder, public ::testing::WithParamInterface<const char*> {};
TEST_P(Requantized, IsTheSameModel) {
  const std::filesystem::path in = golden_dir() / "formats/hf-models" / GetParam();
  EXPECT_EQ(refusal_of(in, "rtn-int8", 0, {}, at("out"), team_), "");
  const Checkpoint before = Checkpoint::open(in), after = Checkpoint::open(at("out"));
  const ModelSource source = open_model_source(before);
  ASSERT_EQ(source.warnings.size(), 1u);
  const auto quantization = read_quantization(*after.hf());
  ASSERT_TRUE(quantization);
  EXPECT_EQ(quantization->method, "compressed-tensors");
  const ModelConfig config = read_model_config(after);
  check_weights(after, config);
  size_t compared = 0;
  for (const SourceTensor& tensor : source.tensors) {
    if (!tensor.from.coded) continue;
    if (const TensorView* plain = after.find_tensor(tensor.name); plain && plain->type == source.float_type) continue;
    const FloatMatrix weights = read_source(source, tensor);
    const FloatMatrix got =
        read_module(after, *quantization, tensor.name.substr(0, tensor.name.size() - 7), weights.rows, weights.cols);
    double lost = 0, all = 0;
    for (size_t i = 0; i < got.values.size(); ++i) {
      lost += std::pow(static_cast<double>(got.values[i]) - weights.values[i], 2);
      all += std::pow(static_cast<double>(weights.values[i]), 2);
    }
    EXPECT_LT(lost, 0.001 * all) << tensor.name;
    ++compared;
  }
  EXPECT_GT(compared, 0u);
}
INSTANTIATE_TEST_SUITE_P(Models, Requantized,
                         ::testing::Values("tiny128-gptq", "tiny128-awq", "tiny128-bnb-nf4", "tiny128-ct-w4a16",
                                           "tiny128-fp8-block128", "llama-gptq-orders", "llama-llm-int8",
                                           "mixtral-gptq", "phi3-gptq", "phi3-fp8", "deepseek-v3-fp8", "qwen3-nvfp4",
                                           "hqq-4bit-g64", "mlx-4bit-mixed", "quark-uint4-mixed", "torchao-int4-plain",
                                           "modelopt-nvfp4-kv"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST_F(Directory, ReplacesAnotherOnlyIfItMay) {
  std::filesystem::create_directory(at("out"));
  std::ofstream(at("out") / "mine") << "mine";
  EXPECT_NE(
      refusal_of(hf_model("llama"), "rtn-int8", 0, {}, at("out"), team_).find("exists; overwrite it with --force"),
      std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(at("out") / "mine"));
  EXPECT_EQ(refusal_of(hf_model("llama"), "rtn-int8", 0, {}, at("out"), team_, true), "");
  EXPECT_FALSE(std::filesystem::exists(at("out") / "mine"));
  EXPECT_TRUE(std::filesystem::exists(at("out") / "model.safetensors"));
  EXPECT_EQ(names(), std::vector<std::string>{"out"});
  std::ofstream(at("file")) << "mine";
  EXPECT_NE(refusal_of(hf_model("llama"), "rtn-int8", 0, {}, at("file"), team_, true).find("exists and is no folder"),
            std::string::npos);
  EXPECT_NE(refusal_of(hf_model("llama"), "rtn-int8", 0, {}, at("none/out"), team_).find("cannot be written"),
            std::string::npos);
}

TEST_F(Directory, LeavesNothingWhenItIsStopped) {
  const Checkpoint checkpoint = Checkpoint::open(hf_model("llama"));
  const ModelSource source = open_model_source(checkpoint);
  const HfMethod& method = find_hf_method("nf4");
  const HfPlan plan = plan_hf_model(source, method, method.defaults, true);
  struct Stopped {};
  for (size_t when : {size_t{0}, size_t{7}, source.tensors.size()}) {
    EXPECT_THROW(write_hf_model(source, plan, {}, at("out"), false, team_,
                                [&](size_t written, size_t, const std::string&) {
                                  if (written == when) throw Stopped();
                                }),
                 Stopped);
    EXPECT_TRUE(names().empty());
  }
}

TEST_F(Directory, DoesNotDependOnTheTeam) {
  const Checkpoint checkpoint = Checkpoint::open(hf_model("llama"));
  const ModelSource source = open_model_source(checkpoint);
  const FindInputs inputs = [&, of = RandomInputs(source)](const Slot& slot) mutable { return of(slot); };
  for (const char* name : {"gptq", "awq", "smoothquant", "nvfp4"}) {
    const HfMethod& method = find_hf_method(name);
    MethodSettings settings = method.defaults;
    if (settings.group > 0) settings.group = 32;
    const HfPlan plan = plan_hf_model(source, method, settings, false);
    Team one(1), three(3);
    write_hf_model(source, plan, inputs, at(std::string(name) + "1"), false, one, ignore_progress);
    write_hf_model(source, plan, inputs, at(std::string(name) + "3"), false, three, ignore_progress);
    EXPECT_EQ(read_text_file(at(std::string(name) + "1") / "model.safetensors"),
              read_text_file(at(std::string(name) + "3") / "model.safetensors"))
        << name;
  }
}

}  // namespace
}  // namespace quire
