"""Reference audio to an x-vector: log-mel spectrogram and the ECAPA-TDNN of a Base checkpoint.

Used when a voice is registered, never while speaking. It knows 24 kHz samples and one vector.

Source: `Qwen3TTSSpeakerEncoder` and `mel_spectrogram` of qwen-tts 0.1.1; the filter bank is the
Slaney-style one of librosa (Auditory Toolbox, Slaney 1998).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from rtts.engine.qwen.config import SpeakerEncoderConfig
from rtts.engine.qwen.extra import Tensor, functional, nn, torch
from rtts.engine.qwen.layers import frozen
from rtts.engine.qwen.weights import Weights

SAMPLE_RATE_HZ = 24_000
_FFT, _HOP, _MELS = 1024, 256, 128
_LINEAR_TOP_HZ, _LINEAR_STEP_HZ = 1000.0, 200.0 / 3.0
_LOG_STEP = 27.0  # mels per factor 6.4 above 1 kHz


def _hz_of_mel(mel: Tensor) -> Tensor:
    knee = _LINEAR_TOP_HZ / _LINEAR_STEP_HZ
    step = torch.log(torch.tensor(6.4, dtype=torch.float64)) / _LOG_STEP
    return torch.where(
        mel < knee, mel * _LINEAR_STEP_HZ, _LINEAR_TOP_HZ * torch.exp(step * (mel - knee))
    )


def mel_filters() -> Tensor:
    """The filter bank, `[128, 513]` float32, 0 to 12 kHz, each filter of unit area."""
    knee = _LINEAR_TOP_HZ / _LINEAR_STEP_HZ
    top_hz = SAMPLE_RATE_HZ / 2
    ratio = torch.log(torch.tensor(top_hz / _LINEAR_TOP_HZ, dtype=torch.float64))
    step = torch.log(torch.tensor(6.4, dtype=torch.float64)) / _LOG_STEP
    top_mel = knee + float(ratio / step)
    edges = _hz_of_mel(torch.linspace(0.0, top_mel, _MELS + 2, dtype=torch.float64))
    bins = torch.linspace(0.0, top_hz, _FFT // 2 + 1, dtype=torch.float64)
    widths = edges.diff()
    slopes = edges[:, None] - bins[None]
    rising = -slopes[:-2] / widths[:-1, None]
    falling = slopes[2:] / widths[1:, None]
    filters = torch.minimum(rising, falling).clamp(min=0.0)
    return (filters * (2.0 / (edges[2:] - edges[:-2]))[:, None]).float()


def log_mel(samples: Tensor) -> Tensor:
    """Log-mel spectrogram `[1, 128, T]` of 24 kHz samples `[S]` in [-1, 1]."""
    padding = (_FFT - _HOP) // 2
    padded = functional.pad(samples[None, None], (padding, padding), mode="reflect")[0]
    window = torch.hann_window(_FFT, device=samples.device)
    spectrum = torch.stft(
        padded, _FFT, _HOP, _FFT, window, center=False, onesided=True, return_complex=True
    )
    magnitude = (torch.view_as_real(spectrum).square().sum(-1) + 1e-9).sqrt()
    return (mel_filters().to(samples.device) @ magnitude).clamp(min=1e-5).log()


class _Conv(nn.Module):
    """A convolution of stride 1 that keeps the length, padded by reflection."""

    def __init__(
        self,
        weights: Weights,
        name: str,
        channels_in: int,
        channels_out: int,
        kernel: int = 1,
        dilation: int = 1,
    ) -> None:
        super().__init__()
        self.weight = frozen(weights.take(f"{name}.weight", channels_out, channels_in, kernel))
        self.bias = frozen(weights.take(f"{name}.bias", channels_out))
        self.dilation = dilation
        total = dilation * (kernel - 1)
        self.padding = (total // 2, total - total // 2)

    def forward(self, x: Tensor) -> Tensor:
        if any(self.padding):
            x = functional.pad(x, self.padding, mode="reflect")
        return functional.conv1d(x, self.weight, self.bias, dilation=self.dilation)


class _Block(nn.Module):
    """SE-Res2Net: pointwise, scaled dilated convolutions, pointwise, squeeze and excitation."""

    def __init__(
        self, weights: Weights, name: str, config: SpeakerEncoderConfig, index: int
    ) -> None:
        super().__init__()
        channels_in, channels = config.enc_channels[index - 1], config.enc_channels[index]
        part, squeezed = channels // config.enc_res2net_scale, config.enc_se_channels
        self.scale = config.enc_res2net_scale
        self.enter = _Conv(weights, f"{name}.tdnn1.conv", channels_in, channels)
        self.parts = cast(
            "Sequence[_Conv]",
            nn.ModuleList(
                _Conv(
                    weights,
                    f"{name}.res2net_block.blocks.{i}.conv",
                    part,
                    part,
                    config.enc_kernel_sizes[index],
                    config.enc_dilations[index],
                )
                for i in range(config.enc_res2net_scale - 1)
            ),
        )
        self.leave = _Conv(weights, f"{name}.tdnn2.conv", channels, channels)
        self.squeeze = _Conv(weights, f"{name}.se_block.conv1", channels, squeezed)
        self.excite = _Conv(weights, f"{name}.se_block.conv2", squeezed, channels)

    def forward(self, x: Tensor) -> Tensor:
        first, *rest = self.enter(x).relu().chunk(self.scale, dim=1)
        outputs = [first]
        for i, (part, conv) in enumerate(zip(rest, self.parts, strict=True)):
            outputs.append(conv(part if i == 0 else part + outputs[-1]).relu())
        h = self.leave(torch.cat(outputs, dim=1)).relu()
        gate = self.excite(self.squeeze(h.mean(dim=2, keepdim=True)).relu()).sigmoid()
        return x + h * gate


class SpeakerEncoder(nn.Module):
    """Weights of the x-vector network."""

    def __init__(self, weights: Weights, config: SpeakerEncoderConfig) -> None:
        super().__init__()
        root, channels = "speaker_encoder", config.enc_channels
        last = channels[-1]
        self.enter = _Conv(
            weights,
            f"{root}.blocks.0.conv",
            config.mel_dim,
            channels[0],
            config.enc_kernel_sizes[0],
            config.enc_dilations[0],
        )
        self.blocks = cast(
            "Sequence[_Block]",
            nn.ModuleList(
                _Block(weights, f"{root}.blocks.{i}", config, i)
                for i in range(1, len(channels) - 1)
            ),
        )
        self.gather = _Conv(
            weights,
            f"{root}.mfa.conv",
            last,
            last,
            config.enc_kernel_sizes[-1],
            config.enc_dilations[-1],
        )
        attention = config.enc_attention_channels
        self.attend_in = _Conv(weights, f"{root}.asp.tdnn.conv", 3 * last, attention)
        self.attend_out = _Conv(weights, f"{root}.asp.conv", attention, last)
        self.leave = _Conv(weights, f"{root}.fc", 2 * last, config.enc_dim)

    def encode(self, samples: Tensor) -> Tensor:
        """The x-vector `[enc_dim]` of 24 kHz samples `[S]` in [-1, 1]; S over 1,024."""
        x = self.enter(log_mel(samples).to(self.leave.weight.dtype)).relu()
        outputs = []
        for block in self.blocks:
            x = block(x)
            outputs.append(x)
        h = self.gather(torch.cat(outputs, dim=1)).relu()
        mean, deviation = _statistics(h, torch.full_like(h, 1.0 / h.shape[2]))
        shape = (-1, -1, h.shape[2])
        context = (h, mean[:, :, None].expand(shape), deviation[:, :, None].expand(shape))
        attended = self.attend_out(self.attend_in(torch.cat(context, dim=1)).relu().tanh())
        pooled = torch.cat(_statistics(h, attended.softmax(dim=2)), dim=1)
        vector: Tensor = self.leave(pooled[:, :, None])[0, :, 0]
        return vector


def _statistics(h: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Weighted mean and standard deviation over time, each `[B, C]`."""
    mean = (weight * h).sum(2)
    variance = (weight * (h - mean[:, :, None]).square()).sum(2)
    return mean, variance.clamp(1e-12).sqrt()
