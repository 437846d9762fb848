// Directories, statistics and temporary folders for tests of the writer of Hugging Face directories.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>

#include "base/files/mapped_file.h"
#include "format/safetensors.h"
#include "format/safetensors_writer.h"
#include "input_statistics_of.h"
#include "model/checkpoint.h"
#include "paths.h"
#include "quant/blocks.h"
#include "quant/encode.h"
#include "quantize/hf/model_writer.h"

namespace quire::testing {

class HfFolder : public ::testing::Test {
 protected:
  HfFolder() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
  }
  ~HfFolder() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path at(const std::string& name) const { return folder_ / name; }
  // What is in the folder, in order.
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) all.push_back(entry.path().filename());
    std::ranges::sort(all);
    return all;
  }

  Team team_{2};

 private:
  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("quire-hf-" + std::to_string(::getpid()));
};

inline std::filesystem::path hf_model(const std::string& name) { return golden_dir() / "models" / name; }

// A copy of a directory with all weights in one type; change(name, values) may change them.
inline void copy_with_type(const std::filesystem::path& from, const std::filesystem::path& to, TensorType type,
                           const std::function<void(const std::string&, std::vector<float>&)>& change = {}) {
  std::filesystem::create_directory(to);
  std::ofstream(to / "config.json") << read_text_file(from / "config.json");
  const Safetensors file = Safetensors::open(from / "model.safetensors");
  std::vector<PlannedSafetensor> planned;
  for (const TensorView& view : file.tensors()) planned.push_back({view.name, type, view.shape});
  SafetensorsWriter writer(to, planned);
  for (size_t i = 0; i < planned.size(); ++i) {
    const TensorView& view = file.tensors()[i];
    std::vector<float> values(view.bytes.size() / info(view.type).block_bytes);
    dequantize(view.type, view.bytes, values);
    std::vector<std::byte> bytes(planned[i].bytes());
    if (encode_row(type, values, {}, bytes) != EncodeResult::kDone) throw std::runtime_error("test data");
    if (change) {
      change(view.name, values);
      for (size_t k = 0; k < values.size(); ++k) {  // also what no encoder would write
        const auto bits = std::bit_cast<uint32_t>(values[k]);
        if (type == TensorType::F32) std::memcpy(bytes.data() + 4 * k, &bits, 4);
      }
    }
    writer.write(i, bytes);
  }
  writer.finish();
}

// Statistics of random inputs that depend on each other, the same for all matrices of a layer with as many inputs.
class RandomInputs {
 public:
  explicit RandomInputs(const ModelSource& source) : source_(source) {}

  std::shared_ptr<const InputStatistics> operator()(const Slot& slot) {
    for (const SourceTensor& tensor : source_.tensors) {
      for (const SourceTensor::Use& use : tensor.uses) {
        if (!use.is_matrix || use.slot.tensor != slot.tensor || use.slot.layer != slot.layer ||
            use.slot.item != slot.item)
          continue;
        auto& made = made_[{slot.layer, tensor.from.cols}];
        if (!made) made = std::make_shared<const InputStatistics>(make(tensor.from.cols, slot.layer));
        return made;
      }
    }
    return nullptr;
  }

 private:
  static InputStatistics make(int cols, int seed) {
    std::mt19937 generator(static_cast<unsigned>(seed * 1000 + cols));
    std::normal_distribution<float> normal;
    FloatMatrix x(4 * cols, cols);
    for (int r = 0; r < x.rows; ++r) {
      const float both = normal(generator);
      for (int c = 0; c < cols; ++c) x.row(r)[c] = (normal(generator) + both) * (c % 11 == 0 ? 6.0f : 0.5f);
    }
    return input_statistics_of(x);
  }

  const ModelSource& source_;
  std::map<std::pair<int, int>, std::shared_ptr<const InputStatistics>> made_;
};

inline void ignore_progress(size_t, size_t, const std::string&) {}

}  // namespace quire::testing
