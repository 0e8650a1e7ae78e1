from __future__ import annotations

import pytest

from logdevice_py.core.lsn import EPOCH_MAX, ESN_MAX, LSN, LSN_MAX, compose_lsn, epoch_of, esn_of, format_lsn


class TestLsn:
    def test_prints_and_parses_the_same_text(self) -> None:
        lsn = LSN(compose_lsn(3, 17))
        assert str(lsn) == "e3n17"
        assert LSN.parse("e3n17") == lsn
        assert LSN.parse(str(int(lsn))) == lsn
        assert (lsn.epoch, lsn.esn) == (3, 17)

    def test_largest_fits_a_signed_64_bit_integer(self) -> None:
        assert compose_lsn(EPOCH_MAX, ESN_MAX) == LSN_MAX < 2**63

    def test_epochs_order_before_esns(self) -> None:
        assert compose_lsn(2, 0) > compose_lsn(1, ESN_MAX)
        assert epoch_of(compose_lsn(7, 9)) == 7
        assert esn_of(compose_lsn(7, 9)) == 9

    @pytest.mark.parametrize(
        "text", ["", "e1", "n1", "e1n", "e-1n2", "e4294967296n1", "e1n4294967296", "x", "1.5", "-3"]
    )
    def test_refuses_what_is_no_lsn_and_says_why(self, text: str) -> None:
        with pytest.raises(ValueError, match=r"LSN|range"):
            LSN.parse(text)

    def test_format_of_a_bare_int(self) -> None:
        assert format_lsn(compose_lsn(1, 0)) == "e1n0"
