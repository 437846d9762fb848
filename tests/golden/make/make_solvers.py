#!/usr/bin/env python3
"""What bitsandbytes makes of a matrix, and what torch rounds to FP8: data/quantize/libraries.safetensors, for tests of Quire's own quantizers.

usage: make_solvers.py OUT_DIR      (needs torch, bitsandbytes, safetensors)
"""
import sys

import bitsandbytes.functional as bnb
import torch
from safetensors.torch import save_file

torch.manual_seed(1)
weight = (torch.randn(97, 198) * 0.03 * torch.exp(torch.randn(97, 198) * 0.5)).bfloat16()  # 301 blocks, the last one of 6 weights
weight[3] = 0
tensors = {"weight": weight}
for kind in "nf4", "fp4":
    for nested in False, True:
        codes, state = bnb.quantize_4bit(weight, blocksize=64, quant_type=kind, compress_statistics=nested)
        name = kind + ("-dq" if nested else "")
        tensors[name + ".codes"] = codes
        tensors[name + ".quant_map"] = state.code
        tensors[name + ".absmax"] = state.absmax
        if nested:
            tensors[name + ".nested_absmax"], tensors[name + ".nested_quant_map"] = state.state2.absmax, state.state2.code
            tensors[name + ".offset"] = state.offset.reshape(1)
codes, largest, _ = bnb.int8_vectorwise_quant(weight.float(), threshold=0.0)
tensors["int8.codes"], tensors["int8.SCB"] = codes, largest.float()
numbers = torch.cat([torch.linspace(-500, 500, 2003), torch.linspace(-0.1, 0.1, 2003), torch.tensor([0.0, -0.0, 448, 464, 0.0009765625, 0.00146484375, 0.0029296875])])
tensors["e4m3.numbers"], tensors["e4m3.codes"] = numbers, numbers.clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8)
save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, sys.argv[1] + "/libraries.safetensors")
