"""Plain quantizers of Hugging Face methods. Each takes a float32 matrix [outputs, inputs] and gives the tensors that a checkpoint has for it, by the ending of their names, and the
matrix that they stand for. Nothing is tuned: weights are rounded to the nearest code."""
import numpy as np
import torch

E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def words(codes, bits):
    """Packs the rows of an integer matrix [n, m] into int32 [n * bits / 32, m], the first row in the low bits."""
    fields = 32 // bits
    shifts = bits * torch.arange(fields)[:, None]
    packed = (codes.long().unflatten(0, (-1, fields)) << shifts).sum(1)
    return torch.from_numpy(packed.numpy().astype(np.uint32).view(np.int32))


def gptq(weight, order=None, bits=4, group=32):
    """order: the inputs as act-order ranks them, whose neighbours form groups."""
    outputs, inputs = weight.shape
    order = torch.arange(inputs) if order is None else order
    groups = torch.empty(inputs, dtype=torch.int32)
    groups[order] = (torch.arange(inputs) // group).int()
    ordered = weight[:, order].unflatten(1, (-1, group))
    low, high, most = ordered.amin(2).clamp(max=0), ordered.amax(2).clamp(min=0), 2**bits - 1
    scales = ((high - low) / most).half().float()
    zeros = (-low / scales).round().clamp(1, most)
    scale, zero = scales[:, groups], zeros[:, groups]
    codes = (weight / scale + zero).round().clamp(0, most)
    tensors = {".qweight": words(codes.T, bits), ".qzeros": words(zeros - 1, bits).T.contiguous(), ".scales": scales.T.half().contiguous(), ".g_idx": groups}
    return tensors, scale * (codes - zero)


def fp8(weight, block=32):
    rows, columns = (-(-n // block) * block for n in weight.shape)
    padded = torch.zeros(rows, columns)
    padded[: weight.shape[0], : weight.shape[1]] = weight
    scales = padded.unflatten(0, (-1, block)).unflatten(2, (-1, block)).abs().amax((1, 3)) / 448
    each = scales.repeat_interleave(block, 0).repeat_interleave(block, 1)[: weight.shape[0], : weight.shape[1]]
    codes = (weight / each).to(torch.float8_e4m3fn)
    return {".weight": codes, ".weight_scale_inv": scales}, codes.float() * each


def int8_rows(weight):
    """Codes and the greatest magnitude of each output."""
    greatest = weight.abs().amax(1, keepdim=True)
    return (weight * 127 / greatest).round().to(torch.int8), greatest


def w8a8(weight):
    codes, greatest = int8_rows(weight)
    scales = (greatest / 127).bfloat16()
    return {".weight": codes, ".weight_scale": scales}, codes.float() * scales.float()


def llm_int8(weight):
    codes, greatest = int8_rows(weight)
    return {".weight": codes, ".SCB": greatest[:, 0].contiguous(), ".weight_format": torch.tensor(0, dtype=torch.uint8)}, codes.float() * (greatest / 127)


def e2m1(values):
    """Codes and the numbers that they stand for."""
    codes = (values.abs()[..., None] - E2M1).abs().argmin(-1)
    negative = values < 0
    return (codes + 8 * negative).to(torch.uint8), torch.where(negative, -E2M1[codes], E2M1[codes])


def pairs(codes):
    """Two codes in a byte, the first in the low half."""
    return codes[..., 0::2] | codes[..., 1::2] << 4


def nvfp4(weight):
    whole = 448 * 6 / weight.abs().max()
    groups = weight.unflatten(1, (-1, 16))
    scales = (groups.abs().amax(2) / 6 * whole).to(torch.float8_e4m3fn)
    each = scales.float()[..., None] / whole
    codes, values = e2m1(groups / each)
    tensors = {".weight_packed": pairs(codes.flatten(1)), ".weight_scale": scales, ".weight_global_scale": whole[None].clone()}
    return tensors, (values * each).flatten(1)


def mxfp4(stack):
    """Of a stack [experts, inputs, outputs], whose codes are [experts, outputs, inputs]."""
    groups = stack.transpose(1, 2).unflatten(2, (-1, 32))
    exponents = groups.abs().amax(3).clamp(min=2**-100).log2().floor() - 2
    codes, values = e2m1(groups / 2 ** exponents[..., None])
    tensors = {"_blocks": pairs(codes), "_scales": (exponents + 127).to(torch.uint8)}
    return tensors, (values * 2 ** exponents[..., None]).flatten(2).transpose(1, 2).contiguous()
