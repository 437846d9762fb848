// A drafter's passes as orders.
#pragma once

#include "engine/step/orders.h"
#include "speculate/network/draft_network.h"

namespace quire {

class DraftOrders final : public DraftNetwork {
 public:
  explicit DraftOrders(Orders& orders) : orders_(orders) { input_.by_drafter = true; }

  std::span<float> forward(const DraftPass& pass) override {
    input_.rows.assign(pass.rows.begin(), pass.rows.end());
    input_.spans.assign(pass.spans.begin(), pass.spans.end());
    input_.features.assign(pass.features.begin(), pass.features.end());
    input_.predicted = pass.predicted;
    input_.heads = pass.heads;
    return orders_.run(input_).logits;
  }

 private:
  Orders& orders_;
  ForwardInput input_;  // reused
};

}  // namespace quire
